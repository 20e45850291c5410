select e.employee_name, e.manager_name, count(o.order_id) as orders, sum(o.total) as total
from {{ ref('dim_employees') }} e
left join {{ ref('fct_orders') }} o on e.employee_id = o.employee_id
group by e.employee_name, e.manager_name
