select s.store_id, s.store_name, s.country, r.region, s.tax_rate
from {{ ref('stg_stores') }} s left join {{ ref('regions') }} r on s.country = r.country
